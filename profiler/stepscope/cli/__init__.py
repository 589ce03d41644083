"""The commands, one file each; `stepscope.cli.main` holds the table of them."""
