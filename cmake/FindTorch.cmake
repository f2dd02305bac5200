# Finds libtorch and defines torch::cpu (and torch::cuda with SPECWIRE_CUDA).
#
# The wheel's own TorchConfig.cmake is not used: a CUDA wheel's config stops
# without a CUDA toolkit, although CPU use needs only c10 and torch_cpu.
# scripts/torch_root.sh says which installation to take; set Torch_DIR to
# override it.

if(NOT TORCH_ROOT)
  if(Torch_DIR AND NOT Torch_DIR MATCHES "NOTFOUND$")
    set(ENV{Torch_DIR} "${Torch_DIR}")
  endif()
  execute_process(
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/torch_root.sh
    OUTPUT_VARIABLE TORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE torch_root_result)
  if(NOT torch_root_result EQUAL 0)
    message(FATAL_ERROR "No libtorch >= 2.6 found; run scripts/setup.sh, or set Torch_DIR")
  endif()
endif()
set(TORCH_ROOT "${TORCH_ROOT}" CACHE PATH "Folder of libtorch: holds include/ and lib/")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch REQUIRED_VARS TORCH_ROOT)

# A CUDA wheel's libtorch_cpu needs libcudart and libcupti, which lie in wheels
# of their own; the linker must find them to resolve its symbols.
file(GLOB torch_nvidia_dirs LIST_DIRECTORIES true
  ${TORCH_ROOT}/../nvidia/*/lib ${TORCH_ROOT}/../nvidia/*/*/lib)

function(specwire_torch_library name file)
  add_library(torch::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch::${name} PROPERTIES
    IMPORTED_LOCATION ${TORCH_ROOT}/lib/${file}
    INTERFACE_INCLUDE_DIRECTORIES
      "${TORCH_ROOT}/include;${TORCH_ROOT}/include/torch/csrc/api/include")
endfunction()

specwire_torch_library(c10 libc10.so)
specwire_torch_library(cpu libtorch_cpu.so)
target_link_libraries(torch::cpu INTERFACE torch::c10)
foreach(dir IN LISTS torch_nvidia_dirs)
  target_link_options(torch::cpu INTERFACE "LINKER:-rpath-link,${dir}" "LINKER:-rpath,${dir}")
endforeach()
target_link_options(torch::cpu INTERFACE "LINKER:-rpath-link,${TORCH_ROOT}/lib")

if(SPECWIRE_CUDA)
  specwire_torch_library(c10_cuda libc10_cuda.so)
  specwire_torch_library(cuda libtorch_cuda.so)
  # --no-as-needed: nothing refers to the CUDA library by symbol; it registers
  # its kernels when it is loaded.
  target_link_options(torch::cuda INTERFACE "LINKER:--no-as-needed")
  target_link_libraries(torch::cuda INTERFACE torch::c10_cuda torch::cpu)
endif()
