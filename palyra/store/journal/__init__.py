"""The part of a journal that does not depend on the database: append check, verification, signed roots."""
