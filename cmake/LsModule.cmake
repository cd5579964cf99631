# ls_module(name SOURCES ... DEPS ... LIBS ... TESTS ...)
#
# One static library a module. DEPS repeats the include table of docs/ARCHITECTURE.md as link dependencies, so that an
# include against the table also fails to link. TESTS are the x_test.cc files that stand beside their sources; they
# become one program, <name>_test.
function(ls_module name)
  cmake_parse_arguments(M "" "" "SOURCES;DEPS;LIBS;TESTS" ${ARGN})
  add_library(lockstep_${name} STATIC ${M_SOURCES})
  target_include_directories(lockstep_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${M_DEPS})
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${dep})
  endforeach()
  target_link_libraries(lockstep_${name} PRIVATE ${M_LIBS} fmt::fmt)
  if(LS_TESTS AND M_TESTS)
    add_executable(${name}_test ${M_TESTS})
    target_link_libraries(${name}_test PRIVATE lockstep_${name} ${M_LIBS} fmt::fmt GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE LS_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    set_property(GLOBAL APPEND PROPERTY LS_TEST_PROGRAMS ${name}_test)
  endif()
endfunction()

# ls_fuzz_program(name SOURCES ... DEPS ...): a libFuzzer program, <name>, which ./test runs for a while. Only with
# LS_FUZZ (preset fuzz, clang). Seeds: tests/fuzz/corpus/<name>/, and what tests/fuzz/make_seeds.py DIR writes to DIR/<name>/.
function(ls_fuzz_program name)
  if(NOT LS_FUZZ)
    return()
  endif()
  cmake_parse_arguments(F "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${F_SOURCES})
  foreach(dep ${F_DEPS})
    target_link_libraries(${name} PRIVATE lockstep_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE fmt::fmt)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY LS_FUZZ_PROGRAMS ${name})
endfunction()
