"""Skills: installed packages, and the tools they bring."""
