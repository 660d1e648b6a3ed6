// SPDX-License-Identifier: Apache-2.0

package access

import "github.com/siderolabs/talos/pkg/machinery/role"

// Groups of callers, as in the contract's table (talos-contract.md §1.4).
var (
	admins    = role.MakeSet(role.Admin)
	operators = role.MakeSet(role.Admin, role.Operator)
	readers   = role.MakeSet(role.Admin, role.Operator, role.Reader)
	backups   = role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	// readersInMaintenance: the handler looks again and lets a reader through only while there is no configuration.
	readersInMaintenance = role.MakeSet(role.Admin, role.Reader)
)

// rules is the table of methods that are not for os:admin alone.
var rules = buildRules()

func buildRules() map[string]role.Set {
	table := map[string]role.Set{
		"/machine.MachineService/ApplyConfiguration": readersInMaintenance,
		"/storage.StorageService/BlockDeviceWipe":    readersInMaintenance,
		"/machine.MachineService/EtcdSnapshot":       role.MakeSet(role.Admin, role.Operator, role.EtcdBackup),
		"/machine.MachineService/MetaWrite":          role.MakeSet(role.Admin, role.MetaWriter),
		"/machine.MachineService/MetaDelete":         role.MakeSet(role.Admin, role.MetaWriter),
		"/machine.ImageService/Verify":               role.MakeSet(role.Admin, role.Operator, role.Reader, role.ImageVerifier),
	}
	add := func(who role.Set, service string, methods ...string) {
		for _, method := range methods {
			table["/"+service+"/"+method] = who
		}
	}
	add(readers, "machine.MachineService",
		"Version", "Hostname", "CPUInfo", "CPUFreqStats", "Containers", "DiskStats", "DiskUsage", "Dmesg", "Events", "ImageList", "List", "LoadAvg",
		"Logs", "LogsContainers", "Memory", "Mounts", "NetworkDeviceStats", "Netstat", "Processes", "ServiceList", "Stats", "SystemStat")
	add(backups, "machine.MachineService", "EtcdMemberList", "EtcdStatus", "EtcdAlarmList")
	add(operators, "machine.MachineService",
		"EtcdAlarmDisarm", "EtcdDefragment", "ImagePull", "PacketCapture", "Reboot", "Shutdown", "Restart", "ServiceStart", "ServiceStop", "ServiceRestart")
	add(readers, "machine.ImageService", "List")
	add(operators, "machine.ImageService", "Pull")
	add(readers, "storage.StorageService", "Disks")
	add(readers, "time.TimeService", "Time", "TimeCheck")
	add(readers, "cluster.ClusterService", "HealthCheck")
	add(readers, "inspect.InspectService", "ControllerRuntimeDependencies")
	add(readers, "cosi.resource.State", "Get", "List", "Watch")
	add(admins, "cosi.resource.State", "Create", "Update", "Destroy")
	return table
}
