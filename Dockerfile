# An image of ce-tune, as one static file, and of the wheel for PyTorch, on NVIDIA's runtime, which brings NVRTC:
#
#   docker build -t ce .
#   docker run --rm --gpus all -v ce:/data ce ce-tune doctor
#
# The database is on the volume at /data. For a program of yours, copy /opt/ce/wheels and pip install what is in it.
FROM debian:12 AS build
SHELL ["/bin/bash", "-ec"]
WORKDIR /src
COPY scripts scripts
RUN scripts/install-dependencies --python --cuda-wheels && scripts/fetch-cuda
COPY . .
RUN . scripts/environment \
 && cmake --preset static -DCE_BUILD_EXAMPLES=OFF -DCE_CUDA_INCLUDE_DIR="$CE_CUDA_INCLUDE_DIR" \
 && cmake --build --preset static --parallel "$(nproc)" --target ce-tune
RUN . scripts/environment \
 && python3 -m venv /wheel \
 && CMAKE_ARGS="-DCE_CUDA_INCLUDE_DIR=$CE_CUDA_INCLUDE_DIR" /wheel/bin/pip wheel --no-deps --wheel-dir /wheels ./python

FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04
COPY --from=build /src/build/static/bin/ce-tune /usr/local/bin/ce-tune
COPY --from=build /wheels /opt/ce/wheels
COPY --from=build /src/LICENSE /usr/share/doc/ce/LICENSE
ENV CE_DB=/data/ce.db
VOLUME /data
CMD ["ce-tune", "doctor"]
