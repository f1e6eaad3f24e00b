"""What is studied: grids, the settings, published numbers, datasets."""
