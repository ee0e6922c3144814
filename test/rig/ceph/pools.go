package ceph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// AwaitHealthy waits until all daemons serve and all data is in reach.
func (c *Cluster) AwaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return c.await(ctx, "health", c.healthy)
}

func (c *Cluster) healthy(ctx context.Context) error {
	text, err := c.Ceph(ctx, "--connect-timeout", "5", "--format", "json", "status")
	if err != nil {
		return err
	}
	var s struct {
		Health struct {
			Status string
			Checks map[string]any
		}
		OSDMap struct {
			Up int `json:"num_up_osds"`
		}
		MgrMap struct{ Available bool }
		FSMap  struct {
			ByRank []struct{ Status string } `json:"by_rank"`
		}
		PGMap struct {
			States []struct {
				Name  string `json:"state_name"`
				Count int
			} `json:"pgs_by_state"`
		}
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	clean := true
	for _, state := range s.PGMap.States {
		clean = clean && state.Name == "active+clean"
	}
	serves := !c.options.MDS || len(s.FSMap.ByRank) > 0 && s.FSMap.ByRank[0].Status == "up:active"
	if s.Health.Status != "HEALTH_OK" || s.OSDMap.Up != 1 || !s.MgrMap.Available || !serves || !clean {
		return fmt.Errorf("the status is %s", text)
	}
	return nil
}

// CreatePool makes a pool.
func (c *Cluster) CreatePool(ctx context.Context, name string) error {
	_, err := c.Ceph(ctx, "osd", "pool", "create", name, "8", "8", "replicated")
	return err
}

// CreateRBDPool makes a pool for images that holds at most quota bytes; 0: no quota.
func (c *Cluster) CreateRBDPool(ctx context.Context, name string, quota int64) error {
	if err := c.CreatePool(ctx, name); err != nil {
		return err
	}
	_, err := c.Ceph(ctx, "osd", "pool", "application", "enable", name, "rbd")
	if quota > 0 {
		err = errors.Join(err, c.SetQuota(ctx, name, quota))
	}
	if err != nil {
		return err
	}
	return c.await(ctx, "the room of pool "+name, func(ctx context.Context) error { return c.measured(ctx, name) })
}

// measured says whether the monitors know how much a new pool can hold.
func (c *Cluster) measured(ctx context.Context, pool string) error {
	text, err := c.Ceph(ctx, "df", "--format", "json")
	if err != nil {
		return err
	}
	var df struct {
		Pools []struct {
			Name  string
			Stats struct {
				Free int64 `json:"max_avail"`
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &df); err != nil {
		return err
	}
	for _, p := range df.Pools {
		if p.Name == pool && p.Stats.Free > 0 {
			return nil
		}
	}
	return fmt.Errorf("df says %s", text)
}

// SetQuota limits what a pool may hold; 0: no quota.
func (c *Cluster) SetQuota(ctx context.Context, pool string, bytes int64) error {
	_, err := c.Ceph(ctx, "osd", "pool", "set-quota", pool, "max_bytes", fmt.Sprint(bytes))
	return err
}

// DeletePool removes a pool with all that is in it.
func (c *Cluster) DeletePool(ctx context.Context, name string) error {
	_, err := c.Ceph(ctx, "osd", "pool", "delete", name, name, "--yes-i-really-really-mean-it")
	return err
}

// CreateUser makes an account, named without "client.", and returns its key. Caps are pairs: mon, "profile rbd", and so on.
func (c *Cluster) CreateUser(ctx context.Context, name string, caps ...string) (key string, err error) {
	if _, err := c.Ceph(ctx, append([]string{"auth", "get-or-create", "client." + name}, caps...)...); err != nil {
		return "", err
	}
	return c.Key(ctx, name)
}

// Key returns the key of an account, such as admin.
func (c *Cluster) Key(ctx context.Context, name string) (string, error) {
	key, err := c.Ceph(ctx, "auth", "get-key", "client."+name)
	return strings.TrimSpace(key), err
}
