"""Three small trainings as people write them, run from a shell with and without Sonde."""
