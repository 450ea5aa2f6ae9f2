"""What works while a program runs: its supervisor, the screen, the verdict, pushes and custom rules."""
