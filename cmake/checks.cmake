# Included by tests/CMakeLists.txt. The tests of the tools and the replay of the fuzz corpora run with all the
# others. The checks carry the label "check": `make test` leaves them out, `make check` runs them alone. They
# find their programs when they run, since `make check` may have installed those after CMake ran.
if(NOT PIPEWRIGHT_FUZZ)
  add_subdirectory(fuzz)
endif()
foreach(tool check_includes setup)
  add_test(NAME Tools.${tool}
           COMMAND /usr/bin/env python3 -B ${PROJECT_SOURCE_DIR}/tests/tools/test_${tool}.py)
  set_tests_properties(Tools.${tool} PROPERTIES TIMEOUT 120)
endforeach()

# The checks build and run other builds: not from within those.
if(PIPEWRIGHT_SANITIZE OR NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

# pipewright_check(name timeout processors command...): a check from the root of the sources.
function(pipewright_check name timeout processors)
  add_test(NAME Check.${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(Check.${name} PROPERTIES LABELS check TIMEOUT ${timeout} PROCESSORS ${processors})
endfunction()

include(ProcessorCount)
ProcessorCount(cores)
pipewright_check(format 120 1 tools/check_format.sh)
pipewright_check(includes 60 1 /usr/bin/env python3 -B tools/check_includes.py)
pipewright_check(install 300 1 tools/check_install.sh ${PROJECT_BINARY_DIR})
pipewright_check(lint 1500 ${cores} /usr/bin/env python3 -B tools/lint.py --build ${PROJECT_BINARY_DIR})
pipewright_check(asan 1500 ${cores} tools/sanitize.sh asan)
pipewright_check(tsan 1500 ${cores} tools/sanitize.sh tsan)
pipewright_check(fuzz_build 900 ${cores} tools/fuzz.sh build)
set_tests_properties(Check.fuzz_build PROPERTIES FIXTURES_SETUP fuzz)
foreach(reader text csv json safetensors checkpoint config npy criteo wordpiece)
  pipewright_check(fuzz_${reader} 120 1 tools/fuzz.sh run 20 ${reader})
  set_tests_properties(Check.fuzz_${reader} PROPERTIES FIXTURES_REQUIRED fuzz)
endforeach()
