"""What is studied: grids, the protocol, published numbers, datasets."""
