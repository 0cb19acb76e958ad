"""What threads, tasks and processes of one program owe each other, through interrupts, forks and ends."""
