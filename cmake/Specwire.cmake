# The kinds of target that Specwire is made of.
#
#   specwire_library(NAME SOURCES a.cc ... [DEPS public...] [PRIVATE_DEPS ...])
#     static library specwire_NAME with the alias specwire::NAME
#   specwire_binary(NAME SOURCES main.cc ... DEPS ...)
#     program bin/NAME
#   specwire_test(NAME SOURCES a_test.cc ... DEPS ... [LABELS unit|integration|slow] [TIMEOUT seconds])
#     GoogleTest program, one ctest test; NAME is its name in ctest -R
#   specwire_sanitized_test(NAME SOURCES a_test.cc ... OWN_SOURCES x.cc ... DEPS ...
#                           [LABELS ...] [TIMEOUT seconds])
#     specwire_test that has AddressSanitizer and UBSan in every build: OWN_SOURCES, files of the
#     project relative to its root, are compiled once more for it, and DEPS are foreign libraries
#   specwire_python_test(NAME SOURCE a_test.py [LABELS ...] [TIMEOUT seconds] [SERIAL] [VENV])
#     unittest file that runs the built programs; helpers in tests/testing; VENV: with the
#     packages that scripts/setup.sh puts into .venv
#   specwire_benchmark(NAME SOURCES a_bench.cc ... DEPS ...)
#     Google Benchmark program bin/NAME; no test
#
# Own code is compiled with specwire_warnings; generated code is not.

add_library(specwire_warnings INTERFACE)
target_compile_options(specwire_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<BOOL:${SPECWIRE_WERROR}>:-Werror>)

add_library(specwire_sanitizers INTERFACE)
if(SPECWIRE_SANITIZE)
  target_compile_options(specwire_sanitizers INTERFACE
    -fsanitize=${SPECWIRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(specwire_sanitizers INTERFACE -fsanitize=${SPECWIRE_SANITIZE})
endif()

# What every target of ours has in common.
function(specwire_target_defaults target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE specwire_warnings)
  target_link_libraries(${target} PUBLIC specwire_sanitizers)
endfunction()

function(specwire_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(specwire_${name} STATIC ${ARG_SOURCES})
  add_library(specwire::${name} ALIAS specwire_${name})
  specwire_target_defaults(specwire_${name})
  target_link_libraries(specwire_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

function(specwire_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  specwire_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# ctest -j starts costly tests first: what takes minutes must not come last.
function(specwire_start_early name labels)
  if("slow" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES COST 1000)
  endif()
endfunction()

function(specwire_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  specwire_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    SPECWIRE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    SPECWIRE_MODEL_DIR="${PROJECT_SOURCE_DIR}/models"
    SPECWIRE_BIN_DIR="${PROJECT_BINARY_DIR}/bin")
  add_test(NAME ${name} COMMAND ${name})
  # One thread for every library that would start a pool of its own: two pools
  # on two cores are far slower than one thread.
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "OMP_NUM_THREADS=1;MKL_NUM_THREADS=1")
  specwire_start_early(${name} "${ARG_LABELS}")
endfunction()

function(specwire_sanitized_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;OWN_SOURCES;DEPS;LABELS" ${ARGN})
  list(TRANSFORM ARG_OWN_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/)
  specwire_test(${name}
    SOURCES ${ARG_SOURCES} ${ARG_OWN_SOURCES}
    DEPS ${ARG_DEPS}
    LABELS ${ARG_LABELS}
    TIMEOUT ${ARG_TIMEOUT})
  # Not in a build that has sanitizers of its own, which may not go together.
  if(NOT SPECWIRE_SANITIZE)
    set(flags -fsanitize=address,undefined)
    target_compile_options(${name} PRIVATE
      ${flags} -O1 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PRIVATE ${flags})
  endif()
endfunction()

function(specwire_python_test name)
  cmake_parse_arguments(ARG "SERIAL;VENV" "SOURCE;TIMEOUT" "LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS integration)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(python ${Python3_EXECUTABLE})
  if(ARG_VENV)
    set(python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  endif()
  add_test(NAME ${name} COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE})
  set(environment
    PYTHONPATH=${PROJECT_SOURCE_DIR}/tests/testing
    PYTHONDONTWRITEBYTECODE=1
    SPECWIRE_TEST_BIN=${PROJECT_BINARY_DIR}/bin
    SPECWIRE_TEST_TINY_MODEL=${PROJECT_BINARY_DIR}/tests/data/tiny.gguf
    SPECWIRE_TEST_MODEL=${PROJECT_SOURCE_DIR}/models/SmolLM2-135M-Instruct.Q4_1.gguf
    SPECWIRE_TEST_DATA=${PROJECT_SOURCE_DIR}/tests/data
    SPECWIRE_TEST_SOURCE=${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${environment}")
  specwire_start_early(${name} "${ARG_LABELS}")
  if(ARG_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

function(specwire_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  specwire_binary(${name}
    SOURCES ${ARG_SOURCES}
    DEPS ${ARG_DEPS} benchmark::benchmark benchmark::benchmark_main)
endfunction()
