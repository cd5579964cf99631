# ls_fuzz(name SOURCES ... DEPS ...)
#
# One libFuzzer program, built only with LS_FUZZ (clang). DEPS are modules. A run is: <build>/tests/fuzz/<name> -max_total_time=60
function(ls_fuzz name)
  cmake_parse_arguments(F "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${F_SOURCES})
  foreach(dep ${F_DEPS})
    target_link_libraries(${name} PRIVATE lockstep_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE fmt::fmt)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()
