# What kernels of other modules use of these; see run_kernels.py.

from virtco.scheduling.rater_kernel cimport Rater

cdef class Run:
    cdef int by, sharing, backfill
    cdef bint each_flow, swaps
    cdef double trickle, theta_s, quantum_s
    cdef double[::1] bound, whole_s, arrival_s, served_s, credit_s, lifted_s
    cdef double[::1] end_s, sent_bits, weight, alone_s, key, last_s, ends_s
    cdef double[::1] intensity
    cdef long long[::1] left, level, rank_level, n_served
    cdef unsigned char[::1] touched
    cdef double now_s
    cdef Py_ssize_t n_live

cdef void end_flow(Rater rater, Run run, Py_ssize_t c, Py_ssize_t f) noexcept nogil
cdef void end_coflow(Rater rater, Run run, Py_ssize_t c) noexcept nogil
cdef void move(Rater rater, Run run, long long[::1] order, double dt_s) noexcept nogil
