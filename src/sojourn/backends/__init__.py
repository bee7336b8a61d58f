"""Where numbers are computed: the processor cores, a GPU, or a Dask cluster."""
