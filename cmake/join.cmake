# pipewright_join(target): its files are compiled several at a time, those that define no name twice together
# (tools/join.py): most of a file's compile time goes into LibTorch's headers. For builds of everything; who
# works on the files sets PIPEWRIGHT_JOIN to OFF and compiles what has changed.
find_package(Python3 QUIET COMPONENTS Interpreter)
function(pipewright_join target)
  if(NOT PIPEWRIGHT_JOIN OR NOT Python3_Interpreter_FOUND)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  execute_process(COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tools/join.py 6 ${sources}
                  OUTPUT_VARIABLE groups OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" groups "${groups}")
  foreach(line IN LISTS groups)
    string(REGEX MATCH "^([0-9]+) (.*)$" _ "${line}")
    set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES UNITY_GROUP ${target}_${CMAKE_MATCH_1})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_MATCH_2})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
