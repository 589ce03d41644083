"""From a Kineto file to columns: reader, collective names, phases, steps."""
