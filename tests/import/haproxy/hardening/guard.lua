core.register_action("guard", { "http-req" }, function(txn)
  if txn.sf:path() == "/guarded" then
    txn:set_var("req.guarded", 1)
  end
end)
