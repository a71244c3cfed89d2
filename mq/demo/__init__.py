"""The jobs that `mq demo` runs, and what is to become of each."""
