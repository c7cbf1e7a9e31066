"""llama.cpp's own HTTP server, in the build of the Python package xllamacpp: llama_server.py MODEL.gguf"""

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = ["smollm2"]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 8192
params.n_parallel = 4
params.n_gpu_layers = 0
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.endpoint_metrics = True
params.warmup = False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
