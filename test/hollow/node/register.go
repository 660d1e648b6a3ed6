// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// machineService is MachineService; its methods are in the files named rpc_*.
type machineService struct {
	machine.UnimplementedMachineServiceServer
	boot *boot
}

// register adds all services that a node of this version has in a mode of its API.
func (b *boot) register(server *grpc.Server, mode string) {
	if mode == ModeMaintenance && b.profile.MaintenanceServer {
		b.registerMaintenance(server)
		return
	}
	machine.RegisterMachineServiceServer(server, &machineService{boot: b})
	if b.profile.Containerd {
		machine.RegisterImageServiceServer(server, &imageService{boot: b})
		machine.RegisterLifecycleServiceServer(server, &lifecycleService{boot: b})
		machine.RegisterDebugServiceServer(server, &debugService{})
	}
	storage.RegisterStorageServiceServer(server, &storageService{boot: b})
	time.RegisterTimeServiceServer(server, &timeService{boot: b})
	cluster.RegisterClusterServiceServer(server, &clusterService{boot: b})
	inspect.RegisterInspectServiceServer(server, &inspectService{})
	v1alpha1.RegisterStateServer(server, b.store.Server())
}

// needControlPlane refuses what only control planes do; in maintenance the type is unknown, which is none either.
func (b *boot) needControlPlane(what string) error {
	if b.isControlPlane() {
		return nil
	}
	return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", what)
}
