package site

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

const poolKeys = "name, engine, fsid, monitors, user, keyFile, cephPool, cephFilesystem, cephNamespace, secure, trashRetention"

// Describes says whether a pool that is described by KEY=VALUE,... is one in a Ceph cluster.
func Describes(s string) bool {
	return slices.ContainsFunc(strings.Split(s, ","), func(field string) bool {
		return strings.EqualFold(field, "engine="+RBD) || strings.EqualFold(field, "engine="+CephFS)
	})
}

// ParsePool parses
// name=block,engine=RBD,fsid=UUID,monitors=ADDRESS[,ADDRESS...],keyFile=FILE,cephPool=NAME[,user=holdfast][,cephNamespace=NAME][,secure=true][,trashRetention=24h].
// duration parses a duration.
func ParsePool(s string, duration func(string) (time.Duration, error)) (Config, error) {
	var c Config
	c.Ceph.User = "holdfast"
	if err := backend.ParsePool(s, poolKeys, func(key, value string) error { return c.set(key, value, duration) }, "monitors"); err != nil {
		return c, err
	}
	return c, c.Complete()
}

func (c *Config) set(key, value string, duration func(string) (time.Duration, error)) (err error) {
	texts := map[string]*string{
		"name": &c.Pool, "engine": &c.Engine, "fsid": &c.Ceph.FSID, "user": &c.Ceph.User, "keyFile": &c.KeyFile,
		"cephPool": &c.Ceph.Pool, "cephFilesystem": &c.Ceph.FileSystem, "cephNamespace": &c.Ceph.Namespace,
	}
	if text, is := texts[key]; is {
		*text = value
		return nil
	}
	switch key {
	case "monitors":
		c.Ceph.Monitors = append(c.Ceph.Monitors, value)
	case "secure":
		if c.Ceph.Secure, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("secure %s is not true or false", backend.Quote(value))
		}
	case "trashRetention":
		c.TrashRetention, err = backend.ParseTrashRetention(value, duration)
		return err
	default:
		return fmt.Errorf("unknown key %s; the keys are: %s", backend.Quote(key), poolKeys)
	}
	return nil
}
