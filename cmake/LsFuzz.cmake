# ls_fuzz(name SOURCES ... DEPS ...)
#
# One libFuzzer program, built with LS_FUZZ (clang). DEPS are modules, as in ls_module. Run it as
#   build-fuzz/tests/fuzz/<name> -max_total_time=120 NEW_INPUTS_FOLDER SEED_FOLDER
function(ls_fuzz name)
  cmake_parse_arguments(F "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${F_SOURCES})
  foreach(dep ${F_DEPS})
    target_link_libraries(${name} PRIVATE lockstep_${dep})
  endforeach()
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY LS_FUZZ_PROGRAMS ${name})
endfunction()
