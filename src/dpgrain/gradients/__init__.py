"""What blocks of rows add to one round of a fit: clipped sums of gradients."""
