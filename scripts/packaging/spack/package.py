# Spack's recipe. In a repository of your own: spack repo create ~/repo; mkdir -p ~/repo/packages/dtrain;
# cp package.py ~/repo/packages/dtrain; spack repo add ~/repo; spack dev-build dtrain@main in a clone.
from spack.package import CMakePackage, depends_on, generator, license, variant, version


class Dtrain(CMakePackage):
    """Trains convolutional networks data-parallel on many CPUs or GPUs, with MPI."""

    license("Apache-2.0")

    version("main")

    variant("cuda", default=False, description="Train on NVIDIA GPUs")
    variant("hwloc", default=True, description="Run ranks on the CPUs near their GPU")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("random123", type="build")
    depends_on("mpi")
    depends_on("onednn@2.6: cpu_runtime=omp")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("libwebp")
    depends_on("libtiff")
    depends_on("giflib")
    depends_on("zlib-api")
    depends_on("cjson")
    depends_on("libarchive")
    depends_on("xxhash")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl@2.18:", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("DTRAIN_TESTS", False),
            self.define("DTRAIN_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define_from_variant("DTRAIN_HWLOC", "hwloc"),
        ]
