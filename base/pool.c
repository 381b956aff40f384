/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/pool.h"

struct jobs { /* first in, first out */
	struct pool_job *first, **last;
};

struct pool {
	struct loop *loop;
	size_t queue_max;
	unsigned nthreads;
	pthread_mutex_t lock; /* protects what follows, to `stop` */
	pthread_cond_t work;  /* a job was queued, or stop */
	struct jobs queued;
	size_t nqueued;
	struct jobs finished; /* run, waiting for their `done` */
	bool stop;
	pthread_t threads[];
};

static void jobs_push(struct jobs *q, struct pool_job *job)
{
	job->next = NULL;
	*q->last = job;
	q->last = &job->next;
}

static struct pool_job *jobs_pop(struct jobs *q)
{
	struct pool_job *job = q->first;

	if (job) {
		q->first = job->next;
		if (!q->first)
			q->last = &q->first;
	}
	return job;
}

static void *worker(void *arg)
{
	struct pool *p = arg;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct pool_job *job = jobs_pop(&p->queued);

		if (!job) {
			if (p->stop)
				break;
			pthread_cond_wait(&p->work, &p->lock);
			continue;
		}
		p->nqueued--;
		pthread_mutex_unlock(&p->lock);
		job->run(job);
		pthread_mutex_lock(&p->lock);
		jobs_push(&p->finished, job);
		loop_wake(p->loop);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void finish(void *arg)
{
	struct pool *p = arg;

	for (;;) {
		pthread_mutex_lock(&p->lock);
		struct pool_job *job = jobs_pop(&p->finished);
		pthread_mutex_unlock(&p->lock);
		if (!job)
			return;
		job->done(job);
	}
}

int pool_new(struct loop *l, unsigned threads, size_t queue_max, struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p) + threads * sizeof(p->threads[0]));
	sigset_t all, old;
	int r;

	if (!p)
		return -ENOMEM;
	p->loop = l;
	p->queue_max = queue_max;
	p->queued.last = &p->queued.first;
	p->finished.last = &p->finished.first;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	r = loop_set_wake(l, finish, p);
	/* Signals belong to the loop's thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	while (!r && p->nthreads < threads) {
		r = -pthread_create(&p->threads[p->nthreads], NULL, worker, p);
		if (!r)
			p->nthreads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		pool_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct pool *pool_free(struct pool *p)
{
	if (!p)
		return NULL;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	/* A worker leaves only when the queue is empty. */
	for (unsigned i = 0; i < p->nthreads; i++)
		pthread_join(p->threads[i], NULL);
	finish(p);
	loop_set_wake(p->loop, NULL, NULL);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return NULL;
}

int pool_submit(struct pool *p, struct pool_job *job)
{
	int r = 0;

	pthread_mutex_lock(&p->lock);
	if (p->nqueued >= p->queue_max) {
		r = -EBUSY;
	} else {
		jobs_push(&p->queued, job);
		p->nqueued++;
		pthread_cond_signal(&p->work);
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}
