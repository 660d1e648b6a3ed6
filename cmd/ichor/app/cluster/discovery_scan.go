// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// scanTimeout is enough for the largest subnet there may be, 65,536 addresses.
const scanTimeout = 15 * time.Minute

type scanOptions struct {
	env     *cli.Env
	cluster string
	wait    progress.Wait
	print   *output.Objects
}

func newDiscoveryScan(env *cli.Env) *cobra.Command {
	options := &scanOptions{env: env, print: output.NewObjects("scan requested")}
	cmd := &cobra.Command{
		Use:   "scan [CLUSTER]",
		Short: "Look for machines now",
		Long:  "Look for machines now, without waiting for the interval. A scan that runs already is finished first.",
		Example: cli.Examples(env, `
			ichor cluster discovery scan --wait
		`),
		Args:              cli.AtMost(1, "one cluster"),
		ValidArgsFunction: lookup.CompleteClusters(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := named(args, &options.cluster); err != nil {
				return err
			}
			return options.run(cmd.Context())
		},
	}
	addClusterFlag(cmd, env, &options.cluster)
	options.wait.AddFlags(cmd, "the scan is over", scanTimeout)
	options.print.AddFlags(cmd)
	return cmd
}

func (o *scanOptions) run(ctx context.Context) error {
	for _, err := range []error{o.print.Check(), o.wait.Check()} {
		if err != nil {
			return err
		}
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	cluster, err := lookup.FetchCluster(ctx, client, o.cluster)
	if err != nil {
		return err
	}
	if len(cluster.Spec.Discovery.Subnets)+len(cluster.Spec.Discovery.Addresses) == 0 {
		return cli.WithCode(cli.ExitBlocked, fmt.Errorf("taloscluster %s looks nowhere: first `%s cluster discovery add CIDR`", cluster.Name, o.env.Name))
	}
	request := string(uuid.NewUUID())
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"discovery": map[string]any{"scanRequest": request}}})
	if err != nil {
		return fmt.Errorf("encode the scan request: %w", err)
	}
	asked, err := client.IchorV1alpha1().TalosClusters().Patch(ctx, cluster.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: cli.FieldManager})
	if err != nil {
		return err
	}
	if err := o.print.Print(o.env, asked, ""); err != nil || !o.wait.Wanted(o.env) {
		return err
	}
	board := progress.NewScan(cluster.Name, request, o.env.Now())
	again := o.env.Name + " cluster discovery list"
	if err := o.wait.Follow(ctx, o.env, board, progress.WatchScan(client, board), again); err != nil {
		return err
	}
	o.tell(board.Result())
	return nil
}

// tell says what to do with what was met.
func (o *scanOptions) tell(result v1alpha1.DiscoveryStatus) {
	if result.Maintenance > 0 {
		o.env.Infof("Machines that wait for approval: %s machine list --field-selector spec.approvalState=pending", o.env.Name)
		return
	}
	o.env.Infof("No machine waits in maintenance mode there. Is it booted from Talos' installation media, in one of the scanned networks, with TCP port 50000 reachable from the cluster?")
}
