# Sampling and acceptance: the part of the step module that needs no model.
set(LS_STEP_SAMPLING_SOURCES accept_walk.cc noise.cc sampler.cc sampling_params.cc)
set(LS_STEP_SAMPLING_TESTS accept_walk_test.cc noise_test.cc sampler_distribution_test.cc sampler_test.cc)
