"""What is studied: grids, settings, claims, published numbers, datasets."""
