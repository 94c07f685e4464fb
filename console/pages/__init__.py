"""The pages of the console, a module for each subject: its routes are `PAGES`, its templates stand in `templates/`."""
