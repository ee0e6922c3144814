// Package rbd keeps volumes as images in a pool of a Ceph cluster, one image for each volume and each snapshot.
//
// All records are in the pool: what a volume is lies in its image's metadata, what is promised in an object beside the
// images (docs/pool-layout.md). One process serves a pool at a time.
package rbd
