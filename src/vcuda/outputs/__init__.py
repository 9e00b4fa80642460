"""6. OUTPUTS: a posterior as something to show or to hand on."""
