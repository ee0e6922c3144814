//go:build !linux || client

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/admin"
)

// A program for another system than Linux, or with the tag client, is a client of clusters. It has no commands of hosts, and
// says so where a flag is of one.

func hostCommands() map[string][]*cobra.Command { return nil }

func metadata() metadataVersion { return metadataVersion{} }

func exitCodeOfCopy(error) int { return 0 }

const (
	poolUsage     = "a `pool` of a Linux host, which this program cannot read"
	cephPoolUsage = "nor one in a Ceph cluster"
)

type poolView any

// hostPools are none.
type hostPools struct{ *logging }

func hostPoolFlags(flags *pflag.FlagSet) *hostPools { return &hostPools{logFlags(flags)} }

func (p *hostPools) add(value string) error {
	return fmt.Errorf("--pool %s: this program is a client of clusters, and pools are read on their Linux host, by the whole program: %w", value, errUsage)
}

func (p *hostPools) addLocal(value string) error { return p.add(value) }

func (p *hostPools) given() bool                                      { return false }
func (p *hostPools) checkHost(...string) error                        { return nil }
func (p *hostPools) explain(err error) error                          { return err }
func (p *hostPools) each(context.Context, func(poolView) error) error { return nil }
func (p *hostPools) restore(context.Context, io.Writer, string) error { return nil }
func (t *topper) showHost(context.Context, io.Writer) error           { return nil }
func volumesOfPools(context.Context, poolView) ([]admin.Row, error)   { return nil, nil }
func snapshotsOfPools(context.Context, poolView) ([]admin.Row, error) { return nil, nil }
func trashOfPools(context.Context, poolView) ([]admin.Trashed, error) { return nil, nil }
