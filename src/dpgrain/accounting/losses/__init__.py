"""What events cost: closed forms where they are exact, dominating pairs for everything else."""
