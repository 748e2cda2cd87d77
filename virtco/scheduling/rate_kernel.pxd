# What kernels of other modules use of these; see rate_kernel.py.

from virtco.scheduling.rater_kernel cimport Rater

cdef extern from *:
    int popcount "__builtin_popcountll" (unsigned long long) nogil
    int lowest "__builtin_ctzll" (unsigned long long) nogil

cdef Py_ssize_t next_alive(Rater rater, Py_ssize_t f) noexcept nogil
cdef double rise(Rater rater, Py_ssize_t n_rising, double most) noexcept nogil
cdef Py_ssize_t still_rising(Rater rater, Py_ssize_t n_rising) noexcept nogil
cpdef void allocate(Rater rater, long long[::1] order, Py_ssize_t n_lifted,
                    int sharing, int backfill, double horizon_s,
                    double trickle, double[::1] weights,
                    double[::1] alone_s) noexcept nogil
