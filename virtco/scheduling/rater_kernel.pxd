# What kernels use of the arrays; see rater_kernel.py.

cdef class Rater:
    cdef double[::1] cap, base, weight, load, scale
    cdef long long[::1] flow_ptr, entry_ptr, split, skip
    cdef int[::1] src, dst, owner, port, alive, first, last
    # Results.
    cdef double[::1] residual, pace, extra_rate
    # Guaranteed paces; read only.
    cdef double[::1] floor
    cdef long long[::1] extra_flow
    cdef readonly Py_ssize_t n_extra
    cdef long long[::1] up_ptr
    cdef int[::1] up
    # Scratch.
    cdef double[::1] demand, share, rising_weight
    cdef long long[::1] flows, count, start, place, rising, chosen
    cdef int[::1] at_port
    cdef unsigned char[::1] stopped

cdef void clear(Rater rater) noexcept nogil
