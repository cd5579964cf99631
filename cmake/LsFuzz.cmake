# ls_fuzz(name SOURCES ... DEPS ... [SEEDS ...])
#
# One libFuzzer program, built with LS_FUZZ (clang). DEPS are modules, as in ls_module. SEEDS are folders, relative to
# the top of the tree, whose files are the first inputs. ./test runs each program for a while. By hand:
#   build-fuzz/tests/fuzz/<name> -max_total_time=120 NEW_INPUTS_FOLDER SEED_FOLDER
function(ls_fuzz name)
  cmake_parse_arguments(F "" "" "SOURCES;DEPS;SEEDS" ${ARGN})
  add_executable(${name} ${F_SOURCES})
  foreach(dep ${F_DEPS})
    string(REGEX REPLACE "^lockstep_" "" dep ${dep})
    target_link_libraries(${name} PRIVATE lockstep_${dep})
  endforeach()
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY LS_FUZZ_PROGRAMS ${name})
  set_property(GLOBAL APPEND_STRING PROPERTY LS_FUZZ_LINES "$<TARGET_FILE:${name}> ${F_SEEDS}\n")
endfunction()
