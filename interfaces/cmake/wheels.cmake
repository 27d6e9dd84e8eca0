# Included after every project() when a wheel is built (CMAKE_PROJECT_INCLUDE, set by build_backend.py).
#
# The message wheels' *__rosidl_generator_py targets name an include directory of the machine they were built
# on, and CMake refuses imported targets with missing directories. Once the directory has been read, and before
# anything is generated, drop the directories that are not there.

function(engram_drop_missing_include_directories)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
    if(directories)
      set(kept "")
      foreach(directory IN LISTS directories)
        if(directory MATCHES "\\$<" OR EXISTS "${directory}")
          list(APPEND kept "${directory}")
        endif()
      endforeach()
      set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${kept}")
    endif()
  endforeach()
endfunction()

cmake_language(DEFER CALL engram_drop_missing_include_directories)
