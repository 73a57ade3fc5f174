"""Finding and removing secrets, in whole texts and in streams."""
