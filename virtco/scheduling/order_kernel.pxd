# What kernels of other modules use of these; see order_kernel.py.

from virtco.scheduling.rater_kernel cimport Rater

cdef double bottleneck(Rater rater, Py_ssize_t c) noexcept nogil
cpdef void round_keys(long long[::1] order, double[::1] key) noexcept nogil
cpdef void sort(long long[::1] order, Py_ssize_t n, long long[::1] level,
                double[::1] key, double[::1] arrival_s) noexcept nogil
cpdef void rank_repeating(long long[::1] order, long long[::1] level,
                          double[::1] alone_s, double[::1] weight,
                          double[::1] intensity, double[::1] key
                          ) noexcept nogil
cpdef void swap_neighbours(Rater rater, long long[::1] order,
                           long long[::1] level, double[::1] weight
                           ) noexcept nogil
