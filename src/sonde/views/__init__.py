"""What is shown of a run, decided once as plain data; terminal and JSON only draw it."""
