"""The design of studies: settings, grids with claims, data."""
