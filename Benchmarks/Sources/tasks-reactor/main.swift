// tasks-reactor hop N | actors N  See TaskWorkloads.

import Reactor
import TaskWorkloads

let here = try RunLoopThread(name: "here")
let there = try RunLoopThread(name: "there")
await runTasks(CommandLine.arguments, here: here.executor, there: there.executor)
