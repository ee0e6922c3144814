//go:build linux && !client

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/local"
)

const poolUsage = "a `pool` of this host; may be given several times, the first is the default:\n" +
	"  name=NAME          as the StorageClass parameter pool names it\n" +
	"  path=DIRECTORY     absolute; best the root of a file system of its own\n" +
	"  engine=Image       (default) a volume is a disk image: a hard limit, block volumes, any file system below\n" +
	"  engine=Directory   a volume is a directory with a quota: no overhead; xfs or ext4 with prjquota, or btrfs\n" +
	"  overcommit=1.0     how often each byte may be promised\n" +
	"  reserved=5%        kept free: a share, or bytes such as 10Gi\n" +
	"  trashRetention=24h how long a deleted volume can be restored, unless its space is needed before; such as 7d; 0s keeps nothing\n" +
	"  requireMount=true  create a new pool only where another file system than the root's is mounted\n" +
	"for example --pool name=fast,path=/srv/fast,reserved=10Gi"

const cephPoolUsage = "or one in a Ceph cluster, with the program of the image holdfast/ceph:\n" +
	"  name=NAME           as in the StorageCluster\n" +
	"  engine=RBD          or CephFS\n" +
	"  fsid=UUID           which ceph fsid prints\n" +
	"  monitors=ADDRESS    v2:ADDRESS:PORT or v1:ADDRESS:PORT; more may follow, each after a comma\n" +
	"  user=holdfast       the Ceph user\n" +
	"  keyFile=FILE        absolute; with the key of that user, as ceph auth get-key prints it\n" +
	"  cephPool=NAME       the pool of images, for RBD\n" +
	"  cephFilesystem=NAME the file system, for CephFS\n" +
	"  cephNamespace=NAME  the namespace of the images, or the subvolume group\n" +
	"  secure=true         encrypt all that is sent\n" +
	"  trashRetention=24h  as the pool has it, for when what is in the trash expires"

type pools []local.PoolConfig

func poolFlag(flags *pflag.FlagSet) *pools {
	p := &pools{}
	flags.Func("pool", poolUsage, p.add)
	return p
}

func (p *pools) add(value string) error {
	c, err := local.ParsePool(value, parseDuration)
	if err != nil {
		return err
	}
	*p = append(*p, c)
	return nil
}

// parseDuration accepts the durations of a StorageCluster.
func parseDuration(value string) (time.Duration, error) { return v1beta1.Duration(value).Parse() }

func (p *pools) check() error {
	if len(*p) == 0 {
		return fmt.Errorf("--pool is missing, such as --pool name=fast,path=/srv/fast: %w", errUsage)
	}
	return nil
}

// open opens the pools for this process; all must exist.
func (p *pools) open(ctx context.Context, log *slog.Logger) (*local.Backend, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return local.Open(ctx, *p, log)
}
