"""The analytic side: what communication costs by arithmetic alone. Nothing here has been measured."""
