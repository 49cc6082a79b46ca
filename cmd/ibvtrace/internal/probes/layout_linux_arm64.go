package probes

const mutexBytes = 48 // pthread_mutex_t
