"""What is known of the values of each library."""
