"""The one place the version is written; the build backend reads it from here."""

__version__ = "0.2.0.dev0"
