"""The experiments of Wang and Blunsom (2015), run again and drawn."""
