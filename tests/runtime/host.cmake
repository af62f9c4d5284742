# The host device: these compile kernels with the system's C++ compiler and run them.
ce_test(half_test LABEL unit SOURCES half_test.cpp)
ce_test(model_key_test LABEL unit SOURCES model_key_test.cpp LINK ce_room_runtime ce_room_base)
ce_test(matmul_test LABEL unit SOURCES matmul_test.cpp LINK ce_room_runtime ce_room_base)
ce_test(source_folder_test LABEL unit SOURCES source_folder_test.cpp LINK ce_room_runtime ce_room_base)
ce_test(host_device_test LABEL host
        SOURCES host_bulk_load_test.cpp host_cluster_send_test.cpp host_cluster_test.cpp host_compile_test.cpp
                host_device_test.cpp
                host_fixture.cpp host_scheduler_test.cpp
        LINK ce_room_runtime ce_room_base ce_fmt)
# Each of these is a little world of kernels with names of its own.
set_target_properties(host_device_test PROPERTIES UNITY_BUILD OFF)
target_compile_definitions(host_device_test PRIVATE CE_TEMPLATE_DIR="${PROJECT_SOURCE_DIR}/templates")
