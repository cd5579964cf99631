# The end of a request's text: the part of the engine that needs neither model nor step.
set(LS_ENGINE_FINISH_SOURCES finish.cc)
set(LS_ENGINE_FINISH_TESTS finish_test.cc)
