# The model-file layer: formats, config and inspect. Included by src/model/CMakeLists.txt.
set(LS_MODEL_FORMATS_SOURCES
  config.cc
  inspect.cc
  formats/ggml_types.cc
  formats/gguf.cc
  formats/gguf_parser.cc
  formats/gguf_split.cc
  formats/gguf_tensors.cc
  formats/gguf_weights.cc)
set(LS_MODEL_FORMATS_TESTS
  config_test.cc
  inspect_test.cc
  formats/gguf_corpus_test.cc
  formats/gguf_test.cc
  formats/heap_counter.cc)
